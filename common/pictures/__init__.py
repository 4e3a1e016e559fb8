"""What every picture has: axes with their ticks and labels, and the templates that draw."""
