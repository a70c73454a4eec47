"""Memory apart from addresses, whatever the driver: what CUDA and Level Zero have in common."""
