"""What the hardware and JAX are like: memory, devices, processes, compiled programs."""
