"""Host streams: what they are connected to, and the threads that fetch ahead for them."""
