"""What a device remembers, on disk: waiting reports, charges, answers that are kept, its ledger."""
