"""What every service has: its process, its settings, its conditions, its workers."""
