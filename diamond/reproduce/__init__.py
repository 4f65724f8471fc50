"""The experiments of the paper (Qiu et al., INFOCOM 2023), on the real data."""
