"""Element-wise operations on tensors: mapped expressions, casts, fills and scaled additions, placed on tiles."""
