"""Trust: masks, signatures, proofs and outliers, for sites that do not believe one another."""
