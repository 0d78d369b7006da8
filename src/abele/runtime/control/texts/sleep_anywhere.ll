; Sleep until a word changes, where the system offers nothing for it: for a moment, and look again.

declare i32 @usleep(i32)

; Number of the core that this thread runs on: not known.
define internal i64 @core() {
  ret i64 0
}

define internal void @sleep_on(ptr %word, i64 %seen) {
  %status = call i32 @usleep(i32 $SLEEP_MICROSECONDS)
  ret void
}

define internal void @wake(ptr %word) {
  ret void
}
