; Barriers of the control virtual machine. Names after a dollar sign are constants of abele.runtime.bytecode.

; Wait until the generation in a word is reached; gives the word. Spins first, then sleeps until it is woken.
;
; It does not spin where the thread that will store the word ran on the same core when it last did: that one cannot run
; meanwhile. Threads meet there on a busy machine, since the kernel likes to run who is woken beside who woke it.
;
; The word after it holds the last generation that a thread sleeps for. A sleeper raises it before it looks at the word
; once more; whoever stores the word looks at it afterwards. Both are sequentially consistent, so that at least one sees
; what the other did: either the sleeper goes on, or it is woken. That it may not sleep yet when it is woken does no harm:
; the kernel lets nobody sleep on a word that is not as it was seen. Generations only grow, so nobody needs to reset it.
define internal i64 @spin(ptr %shared, ptr %word, i64 %generation) {
entry:
  %most.at = getelementptr i64, ptr %shared, i64 $SHARED_SPINS
  %free = load i64, ptr %most.at
  %theirs.at = getelementptr i64, ptr %word, i64 2
  %theirs = load atomic i64, ptr %theirs.at monotonic, align 8
  %mine = call i64 @core()
  %known = icmp ne i64 %mine, 0
  %same = icmp eq i64 %theirs, %mine
  %shares = and i1 %known, %same
  %most = select i1 %shares, i64 0, i64 %free
  br label %look
look:
  %spins = phi i64 [0, %entry], [%more, %pausing], [%spins, %sleeping]
  %seen = load atomic i64, ptr %word seq_cst, align 8
  %reached = lshr i64 %seen, 2
  %done = icmp eq i64 %reached, %generation
  br i1 %done, label %leave, label %wait
wait:
  %hot = icmp ult i64 %spins, %most
  br i1 %hot, label %pausing, label %tired
pausing:
  %more = add i64 %spins, 1
  call void @pause()
  br label %look
tired:
  %sleepers = getelementptr i64, ptr %word, i64 1
  %before = atomicrmw umax ptr %sleepers, i64 %generation seq_cst, align 8
  %last = load atomic i64, ptr %word seq_cst, align 8
  %changed = icmp ne i64 %last, %seen
  br i1 %changed, label %sleeping, label %asleep
asleep:
  call void @sleep_on(ptr %word, i64 %seen)
  br label %sleeping
sleeping:
  br label %look
leave:
  ret i64 %seen
}

; Store a word that other threads wait for, and wake those that sleep.
define internal void @announce(ptr %word, i64 %value, i64 %generation) {
  %core = call i64 @core()
  %core.at = getelementptr i64, ptr %word, i64 2
  store atomic i64 %core, ptr %core.at monotonic, align 8
  %before = atomicrmw xchg ptr %word, i64 %value seq_cst, align 8
  %sleepers = getelementptr i64, ptr %word, i64 1
  %last = load atomic i64, ptr %sleepers seq_cst, align 8
  %asleep = icmp uge i64 %last, %generation
  br i1 %asleep, label %waking, label %done
waking:
  call void @wake(ptr %word)
  br label %done
done:
  ret void
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
  call void @announce(ptr %release, i64 %out, i64 %now)
  ret i64 %verdict
follow:
  %mine = mul i64 %thread, 8
  %signal = getelementptr i64, ptr %arrivals, i64 %mine
  call void @announce(ptr %signal, i64 %word, i64 %now)
  %seen = call i64 @spin(ptr %shared, ptr %release, i64 %now)
  %told = and i64 %seen, 3
  ret i64 %told
}


; What thread 0 does at a barrier while it is alone: count it, and look whether the run is to end here.
define internal i1 @ends_here(ptr %shared, i64 %may_stop) alwaysinline {
  %rounds.at = getelementptr i64, ptr %shared, i64 $SHARED_ROUNDS
  %rounds = load i64, ptr %rounds.at
  %more = add i64 %rounds, 1
  store atomic i64 %more, ptr %rounds.at monotonic, align 8
  %stop.at = getelementptr i64, ptr %shared, i64 $SHARED_STOP
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %asked = icmp ne i64 %stop, 0
  %may = icmp ne i64 %may_stop, 0
  %stops = and i1 %asked, %may
  %fault.at = getelementptr i64, ptr %shared, i64 $SHARED_FAULT
  %fault = load atomic i64, ptr %fault.at acquire, align 8
  %fails = icmp ne i64 %fault, 0
  %ends = or i1 %stops, %fails
  ret i1 %ends
}
