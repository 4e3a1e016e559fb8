"""The page Planner: how far off a figure may be, and what that costs."""
