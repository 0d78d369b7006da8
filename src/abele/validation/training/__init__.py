"""Published training runs: their networks, as configured, compiled for the systems that they ran on."""
