"""Differential privacy: accounting of a mechanism, and the ledger of a site."""
