"""What a task must satisfy before anybody signs it."""
