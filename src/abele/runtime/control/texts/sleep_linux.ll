; Sleep until a word changes, on Linux: futex(2). The kernel looks at the lower half of the word, which comes first.

declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()

; Number of the core that this thread runs on, from 1.
define internal i64 @core() {
  %number = call i32 @sched_getcpu()
  %wide = sext i32 %number to i64
  %core = add i64 %wide, 1
  ret i64 %core
}

define internal void @sleep_on(ptr %word, i64 %seen) {
  %low = trunc i64 %seen to i32
  %status = call i64 (i64, ...) @syscall(i64 $SYS_FUTEX, ptr %word, i32 $FUTEX_WAIT, i32 %low, ptr null)
  ret void
}

define internal void @wake(ptr %word) {
  %woken = call i64 (i64, ...) @syscall(i64 $SYS_FUTEX, ptr %word, i32 $FUTEX_WAKE, i32 2147483647)
  ret void
}
