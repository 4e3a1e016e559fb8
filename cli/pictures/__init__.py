"""The pictures that ``--plot`` writes: a line chart, and around it what every command does."""
