"""The shuffler's part in a round: seats, phases, and what the analyzer is asked."""
