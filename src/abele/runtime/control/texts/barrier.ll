; Barriers of the control virtual machine. Names after a dollar sign are constants of abele.runtime.bytecode.

; Wait until the generation in a word is reached; gives the word. Spins first, then yields, then sleeps.
define internal i64 @spin(ptr %shared, ptr %word, i64 %generation) {
entry:
  br label %look
look:
  %spins = phi i64 [0, %entry], [%more, %again]
  %seen = load atomic i64, ptr %word acquire, align 8
  %reached = lshr i64 %seen, 2
  %done = icmp eq i64 %reached, %generation
  br i1 %done, label %leave, label %wait
wait:
  %more = add i64 %spins, 1
  %hot = icmp ult i64 %more, $SPINS_BEFORE_YIELD
  br i1 %hot, label %pausing, label %patient
pausing:
  call void @pause()
  br label %again
patient:
  %warm = icmp ult i64 %more, $SPINS_BEFORE_SLEEP
  br i1 %warm, label %yielding, label %sleeping
yielding:
  %yield.at = getelementptr i64, ptr %shared, i64 $SHARED_YIELD
  %yield = load ptr, ptr %yield.at
  call i32 %yield()
  br label %again
sleeping:
  %sleep.at = getelementptr i64, ptr %shared, i64 $SHARED_SLEEP
  %sleep = load ptr, ptr %sleep.at
  call i32 %sleep(i32 $SLEEP_MICROSECONDS)
  br label %again
again:
  br label %look
leave:
  ret i64 %seen
}

; Wait for all threads. Thread 0 waits for the others, decides, and releases them with the verdict in the same word.
;
; Each thread counts barriers itself (the generation), so no word is ever reset, and a thread that is late can mistake no
; barrier for another. A store with release ordering follows all that a thread wrote, and a load with acquire ordering
; precedes all that it reads next: what any thread wrote before the barrier is seen by all after it, through thread 0. The
; verdict travels in the two low bits of the release word, so that all threads leave at the same barrier or none does.
define internal i64 @barrier(ptr %shared, i64 %thread, i64 %threads, ptr %generation, i64 %failed, i64 %may_stop) {
entry:
  %last = load i64, ptr %generation
  %now = add i64 %last, 1
  store i64 %now, ptr %generation
  %word = shl i64 %now, 2
  %release = getelementptr i64, ptr %shared, i64 $SHARED_RELEASE
  %arrivals = getelementptr i64, ptr %shared, i64 $SHARED_ARRIVED
  %leads = icmp eq i64 %thread, 0
  br i1 %leads, label %gather, label %follow
gather:
  %other = phi i64 [1, %entry], [%next, %await]
  %all = icmp sge i64 %other, %threads
  br i1 %all, label %decide, label %await
await:
  %line = mul i64 %other, 8
  %arrived = getelementptr i64, ptr %arrivals, i64 %line
  %here = call i64 @spin(ptr %shared, ptr %arrived, i64 %now)
  %next = add i64 %other, 1
  br label %gather
decide:
  %stop.at = getelementptr i64, ptr %shared, i64 $SHARED_STOP
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %asked = icmp ne i64 %stop, 0
  %may = icmp ne i64 %may_stop, 0
  %stops = and i1 %asked, %may
  %fault.at = getelementptr i64, ptr %shared, i64 $SHARED_FAULT
  %fault = load atomic i64, ptr %fault.at acquire, align 8
  %failures = or i64 %failed, %fault
  %fails = icmp ne i64 %failures, 0
  %goes = select i1 %stops, i64 $VERDICT_STOPPED, i64 $VERDICT_DONE
  %verdict = select i1 %fails, i64 $VERDICT_FAILED, i64 %goes
  %out = or i64 %word, %verdict
  store atomic i64 %out, ptr %release release, align 8
  ret i64 %verdict
follow:
  %mine = mul i64 %thread, 8
  %signal = getelementptr i64, ptr %arrivals, i64 %mine
  store atomic i64 %word, ptr %signal release, align 8
  %seen = call i64 @spin(ptr %shared, ptr %release, i64 %now)
  %told = and i64 %seen, 3
  ret i64 %told
}

