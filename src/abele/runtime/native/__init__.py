"""Host kernels: which steps they carry out together, over which storage, planned as leaves."""
