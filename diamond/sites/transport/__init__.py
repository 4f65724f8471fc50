"""Transport: frames over mutual TLS, directly or through relays, and calls made of them."""
