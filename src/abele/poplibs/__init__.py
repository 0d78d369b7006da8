"""PopLibs: functions that build graph and program, with their codelets, costs and host kernels side by side."""
