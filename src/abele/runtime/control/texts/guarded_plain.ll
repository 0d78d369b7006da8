; Leaves called as they are, where no way out of a fault is known.

define internal i64 @abele_guarded(ptr %guard, ptr %leaf, i64 %begin, i64 %end, ptr %args, i64 %extra) {
  call void %leaf(i64 %begin, i64 %end, ptr %args, i64 %extra)
  ret i64 0
}

define internal void @guard_begin(ptr %guard) {
  ret void
}
