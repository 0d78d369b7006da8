; What the virtual machine calls for leaves and meetings where nobody measures them.

define internal i64 @plain_leaf(ptr %notes, i64 %at, ptr %guard, ptr %leaf, i64 %begin, i64 %end, ptr %args, i64 %extra) alwaysinline {
  %fault = call i64 @abele_guarded(ptr %guard, ptr %leaf, i64 %begin, i64 %end, ptr %args, i64 %extra)
  ret i64 %fault
}

define internal void @plain_pass(ptr %notes, i64 %at) alwaysinline {
  ret void
}

define internal i64 @plain_barrier(ptr %notes, ptr %shared, i64 %thread, i64 %threads, ptr %generation, i64 %failed, i64 %may_stop) alwaysinline {
  %verdict = call i64 @barrier(ptr %shared, i64 %thread, i64 %threads, ptr %generation, i64 %failed, i64 %may_stop)
  ret i64 %verdict
}

define internal i64 @plain_callback(ptr %notes, i64 %at, ptr %python, i64 %which) alwaysinline {
  %status = call i64 %python(i64 %which)
  ret i64 %status
}
