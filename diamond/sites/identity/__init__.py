"""Identity: the authority of a federation, its certificates, its roster and its members."""
