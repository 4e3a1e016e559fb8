"""What several randomizers share: forms of reports, draws, laws, tables."""
