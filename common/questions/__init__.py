"""What a person's value says, and questions without a list of answers."""
