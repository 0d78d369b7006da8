; What the virtual machine calls for leaves and meetings where it notes their times.
;
; Each thread has a table of notes of its own: a row for what comes before any leaf, then one for each instruction, of
; $NOTE_WORDS words. The first words of the first row hold the row of the leaf that the thread ran
; last, and the clock that is read. What a thread waits for at a barrier is noted with that leaf.

declare i32 @clock_gettime(i32, ptr)

define internal i64 @now(ptr %notes) {
  %time = alloca [2 x i64]
  %clock.at = getelementptr i64, ptr %notes, i64 $NOTES_CLOCK
  %clock.word = load i64, ptr %clock.at
  %clock = trunc i64 %clock.word to i32
  %status = call i32 @clock_gettime(i32 %clock, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %nanoseconds = add i64 %whole, %rest
  ret i64 %nanoseconds
}

; The least that goes by between two readings of a clock right after each other, in some tries.
define i64 @clock_cost(ptr %notes, i64 %tries) {
entry:
  br label %try
try:
  %number = phi i64 [0, %entry], [%next, %try]
  %least = phi i64 [1000000000, %entry], [%less, %try]
  %before = call i64 @now(ptr %notes)
  %after = call i64 @now(ptr %notes)
  %between = sub i64 %after, %before
  %shorter = icmp slt i64 %between, %least
  %less = select i1 %shorter, i64 %between, i64 %least
  %next = add i64 %number, 1
  %more = icmp slt i64 %next, %tries
  br i1 %more, label %try, label %done
done:
  ret i64 %less
}

; The row of an instruction, which from now on is that of the last leaf.
define internal ptr @entered(ptr %notes, i64 %at) {
  %number = add i64 %at, 1
  %first = mul i64 %number, $NOTE_WORDS
  %last.at = getelementptr i64, ptr %notes, i64 $NOTES_LAST
  store i64 %first, ptr %last.at
  %row = getelementptr i64, ptr %notes, i64 %first
  ret ptr %row
}

; Note that what began at a time is done.
define internal void @done(ptr %notes, ptr %row, i64 %begin) {
  %end = call i64 @now(ptr %notes)
  %time = sub i64 %end, %begin
  %count.at = getelementptr i64, ptr %row, i64 $NOTE_COUNT
  %count = load i64, ptr %count.at
  %counted = add i64 %count, 1
  store i64 %counted, ptr %count.at
  %busy.at = getelementptr i64, ptr %row, i64 $NOTE_BUSY
  %busy = load i64, ptr %busy.at
  %busier = add i64 %busy, %time
  store i64 %busier, ptr %busy.at
  %shortest.at = getelementptr i64, ptr %row, i64 $NOTE_SHORTEST
  %shortest = load i64, ptr %shortest.at
  %first = icmp eq i64 %count, 0
  %shorter = icmp slt i64 %time, %shortest
  %takes = or i1 %first, %shorter
  %least = select i1 %takes, i64 %time, i64 %shortest
  store i64 %least, ptr %shortest.at
  ret void
}

define internal i64 @timed_leaf(ptr %notes, i64 %at, ptr %guard, ptr %leaf, i64 %begin, i64 %end, ptr %args, i64 %extra) {
  %row = call ptr @entered(ptr %notes, i64 %at)
  ; A leaf that notes the times of what it calls is given where; such a leaf takes nothing else.
  %parts.at = getelementptr i64, ptr %row, i64 $NOTE_PARTS
  %parts = load i64, ptr %parts.at
  %parts.first = getelementptr i64, ptr %notes, i64 %parts
  %parts.word = ptrtoint ptr %parts.first to i64
  %whole = icmp eq i64 %parts, 0
  %last = select i1 %whole, i64 %extra, i64 %parts.word
  %start = call i64 @now(ptr %notes)
  %fault = call i64 @abele_guarded(ptr %guard, ptr %leaf, i64 %begin, i64 %end, ptr %args, i64 %last)
  call void @done(ptr %notes, ptr %row, i64 %start)
  ret i64 %fault
}

define internal void @timed_pass(ptr %notes, i64 %at) {
  %row = call ptr @entered(ptr %notes, i64 %at)
  ret void
}

define internal i64 @timed_barrier(ptr %notes, ptr %shared, i64 %thread, i64 %threads, ptr %generation, i64 %failed, i64 %may_stop) {
  %start = call i64 @now(ptr %notes)
  %verdict = call i64 @barrier(ptr %shared, i64 %thread, i64 %threads, ptr %generation, i64 %failed, i64 %may_stop)
  %end = call i64 @now(ptr %notes)
  %time = sub i64 %end, %start
  %last.at = getelementptr i64, ptr %notes, i64 $NOTES_LAST
  %first = load i64, ptr %last.at
  %row = getelementptr i64, ptr %notes, i64 %first
  %waited.at = getelementptr i64, ptr %row, i64 $NOTE_WAITED
  %waited = load i64, ptr %waited.at
  %longer = add i64 %waited, %time
  store i64 %longer, ptr %waited.at
  ret i64 %verdict
}

define internal i64 @timed_callback(ptr %notes, i64 %at, ptr %python, i64 %which) {
  %row = call ptr @entered(ptr %notes, i64 %at)
  %start = call i64 @now(ptr %notes)
  %status = call i64 %python(i64 %which)
  call void @done(ptr %notes, ptr %row, i64 %start)
  ret i64 %status
}
