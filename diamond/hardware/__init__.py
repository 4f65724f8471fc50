"""Hardware and JAX: memory, devices, processes, compiled programs."""
