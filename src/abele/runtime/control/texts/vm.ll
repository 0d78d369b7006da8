; The control virtual machine: one function that every host thread runs from start to end, in step with the others.
; Names after a dollar sign are constants of abele.runtime.bytecode. There is one such function that notes no times and
; one that does (KIND: plain, timed), of the same text: they differ in what is called for leaves and meetings, in
; plain.ll and timed.ll, so that a program that nobody measures pays nothing for it.

; Run the program; gives a verdict. Denormals are flushed except in callbacks.
define i64 @${KIND}_run(ptr %shared, i64 %thread, ptr %registers) {
entry:
  %generation = alloca i64
  %failed = alloca i64
  %pc = alloca i64
  ; how many stretches that thread 0 runs alone it is in
  %lone = alloca i64
  store i64 0, ptr %lone
  store i64 0, ptr %generation
  store i64 0, ptr %failed
  %entry.at = getelementptr i64, ptr %shared, i64 $SHARED_ENTRY
  %start = load i64, ptr %entry.at
  store i64 %start, ptr %pc
  %threads.at = getelementptr i64, ptr %shared, i64 $SHARED_THREADS
  %threads = load i64, ptr %threads.at
  %code.at = getelementptr i64, ptr %shared, i64 $SHARED_CODE
  %code = load ptr, ptr %code.at
  %python.at = getelementptr i64, ptr %shared, i64 $SHARED_CALLBACK
  %python = load ptr, ptr %python.at
  %streams.at = getelementptr i64, ptr %shared, i64 $SHARED_STREAMS
  %streams = load ptr, ptr %streams.at
  %leads = icmp eq i64 %thread, 0
  %guards.at = getelementptr i64, ptr %shared, i64 $SHARED_GUARDS
  %guards = load ptr, ptr %guards.at
  %guard.at = getelementptr ptr, ptr %guards, i64 %thread
  %guard = load ptr, ptr %guard.at
  call void @guard_begin(ptr %guard)
  %notes.at = getelementptr i64, ptr %shared, i64 $SHARED_NOTES
  %notes.first = load ptr, ptr %notes.at
  %notes.bytes.at = getelementptr i64, ptr %shared, i64 $SHARED_NOTES_BYTES
  %notes.bytes = load i64, ptr %notes.bytes.at
  %notes.before = mul i64 %notes.bytes, %thread
  %notes = getelementptr i8, ptr %notes.first, i64 %notes.before
  %mode = call i64 @flush_denormals()
  br label %fetch

fetch:
  %at = load i64, ptr %pc
  %after = add i64 %at, 1
  store i64 %after, ptr %pc
  %first = mul i64 %at, $WORDS
  %words = getelementptr i64, ptr %code, i64 %first
  %op = load i64, ptr %words
  %a.at = getelementptr i64, ptr %words, i64 1
  %a = load i64, ptr %a.at
  %b.at = getelementptr i64, ptr %words, i64 2
  %b = load i64, ptr %b.at
  %c.at = getelementptr i64, ptr %words, i64 3
  %c = load i64, ptr %c.at
  %d.at = getelementptr i64, ptr %words, i64 4
  %d = load i64, ptr %d.at
  %ra = getelementptr i64, ptr %registers, i64 %a
  %rb = getelementptr i64, ptr %registers, i64 %b
  %rc = getelementptr i64, ptr %registers, i64 %c
  switch i64 %op, label %halt [
    i64 $OP_CALL, label %call
    i64 $OP_COUNT, label %call
    i64 $OP_SOLO, label %solo
    i64 $OP_BARRIER, label %meet
    i64 $OP_LOOP, label %loop
    i64 $OP_NEXT, label %next
    i64 $OP_JUMP, label %jump
    i64 $OP_BRANCH, label %branch
    i64 $OP_JSR, label %jsr
    i64 $OP_RET, label %ret
    i64 $OP_CALLBACK, label %serve
    i64 $OP_FETCH, label %stream
    i64 $OP_DRAIN, label %drain
    i64 $OP_BIND, label %bind
    i64 $OP_TALLY, label %tally
    i64 $OP_CASE, label %case
    i64 $OP_ROWS, label %rows
    i64 $OP_ELAPSED, label %elapsed
    i64 $OP_MODE, label %modes
    i64 $OP_SEEDED, label %call
    i64 $OP_ADVANCE, label %advance
    i64 $OP_ROW, label %named
    i64 $OP_ALONE, label %parting
    i64 $OP_TOGETHER, label %joining
  ]

call:
  %leaf = inttoptr i64 %a to ptr
  %e.at = getelementptr i64, ptr %words, i64 5
  %cuts = load i64, ptr %e.at
  %has.cuts = icmp ne i64 %cuts, 0
  %call.depth = load i64, ptr %lone
  %call.alone = icmp ne i64 %call.depth, 0
  %team = select i1 %call.alone, i64 1, i64 %threads
  %several = icmp ne i64 %team, 1
  %uneven = and i1 %has.cuts, %several
  br i1 %uneven, label %cut, label %even
even:
  %units.low = mul i64 %b, %thread
  %units.high = add i64 %units.low, %b
  %round = sub i64 %team, 1
  %low.up = add i64 %units.low, %round
  %high.up = add i64 %units.high, %round
  %even.begin = sdiv i64 %low.up, %team
  %even.end = sdiv i64 %high.up, %team
  br label %taking
cut:
  %cuts.at = inttoptr i64 %cuts to ptr
  %cut.begin.at = getelementptr i64, ptr %cuts.at, i64 %thread
  %cut.begin = load i64, ptr %cut.begin.at
  %cut.end.at = getelementptr i64, ptr %cut.begin.at, i64 1
  %cut.end = load i64, ptr %cut.end.at
  br label %taking
taking:
  %begin = phi i64 [%even.begin, %even], [%cut.begin, %cut]
  %end = phi i64 [%even.end, %even], [%cut.end, %cut]
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %share, label %pass
pass:
  call void @${KIND}_pass(ptr %notes, i64 %at)
  br label %fetch
share:
  %draws = icmp eq i64 %op, $OP_SEEDED
  br i1 %draws, label %seeded, label %started
seeded:
  %seed.at = inttoptr i64 %d to ptr
  %seed = load i64, ptr %seed.at
  br label %started
started:
  ; the seed, or where slots are counted; a leaf that takes neither does not look
  %extra = phi i64 [%d, %share], [%seed, %seeded]
  %share.fault = call i64 @${KIND}_leaf(ptr %notes, i64 %at, ptr %guard, ptr %leaf, i64 %begin, i64 %end, ptr %rc, i64 %extra)
  %share.failed = icmp ne i64 %share.fault, 0
  br i1 %share.failed, label %fault, label %fetch

solo:
  %whole = inttoptr i64 %a to ptr
  br i1 %leads, label %alone, label %fetch
alone:
  %whole.fault = call i64 @${KIND}_leaf(ptr %notes, i64 %at, ptr %guard, ptr %whole, i64 0, i64 %b, ptr %rc, i64 0)
  %whole.failed = icmp ne i64 %whole.fault, 0
  br i1 %whole.failed, label %fault, label %fetch

fault:
  %fault.at = getelementptr i64, ptr %shared, i64 $SHARED_FAULT
  store atomic i64 1, ptr %fault.at release, align 8
  br label %fetch

parting:
  %parts.here = icmp ne i64 %a, 0
  br i1 %parts.here, label %apart, label %fetch
apart:
  br i1 %leads, label %deeper, label %passed
deeper:
  %depth.before = load i64, ptr %lone
  %depth.after = add i64 %depth.before, 1
  store i64 %depth.after, ptr %lone
  br label %fetch
passed:
  store i64 %b, ptr %pc
  br label %fetch

joining:
  %joins.here = icmp ne i64 %a, 0
  br i1 %joins.here, label %shallower, label %passed
shallower:
  %depth.inside = load i64, ptr %lone
  %depth.outside = sub i64 %depth.inside, 1
  store i64 %depth.outside, ptr %lone
  br label %fetch

; Alone, nobody has to be waited for. The others wait at the next barrier behind: where the run ends they are told so.
meet:
  %meet.depth = load i64, ptr %lone
  %meet.alone = icmp ne i64 %meet.depth, 0
  br i1 %meet.alone, label %look, label %all.meet
look:
  %ends = call i1 @ends_here(ptr %shared, i64 %a)
  br i1 %ends, label %all.meet, label %fetch
all.meet:
  %agreed = call i64 @${KIND}_barrier(ptr %notes, ptr %shared, i64 %thread, i64 %threads, ptr %generation, i64 0, i64 %a)
  %parts = icmp ne i64 %agreed, 0
  br i1 %parts, label %leave, label %fetch

loop:
  store i64 %b, ptr %ra
  %none = icmp eq i64 %b, 0
  br i1 %none, label %skip, label %fetch
skip:
  store i64 %c, ptr %pc
  br label %fetch

next:
  %left = load i64, ptr %ra
  %rest = sub i64 %left, 1
  store i64 %rest, ptr %ra
  %more = icmp ne i64 %rest, 0
  br i1 %more, label %back, label %fetch
back:
  store i64 %b, ptr %pc
  br label %fetch

jump:
  store i64 %a, ptr %pc
  br label %fetch

branch:
  %predicate.at = inttoptr i64 %a to ptr
  %bits = load i64, ptr %predicate.at, align 1
  %masked = and i64 %bits, %b
  %true = icmp ne i64 %masked, 0
  %value = zext i1 %true to i64
  %takes = icmp eq i64 %value, %c
  br i1 %takes, label %taken, label %fetch
taken:
  store i64 %d, ptr %pc
  br label %fetch

jsr:
  store i64 %after, ptr %rb
  store i64 %a, ptr %pc
  br label %fetch

ret:
  %home = load i64, ptr %ra
  store i64 %home, ptr %pc
  br label %fetch

stream:
  %line = mul i64 %a, $STREAM_WORDS
  %stream.at = getelementptr i64, ptr %streams, i64 %line
  %served.at = getelementptr i64, ptr %stream.at, i64 $STREAM_MODE
  %served = load i64, ptr %served.at
  %base.at = getelementptr i64, ptr %stream.at, i64 $STREAM_BASE
  %base = load i64, ptr %base.at
  %size.at = getelementptr i64, ptr %stream.at, i64 $STREAM_BYTES
  %size = load i64, ptr %size.at
  %number.at = getelementptr i64, ptr %stream.at, i64 $STREAM_CALLBACK
  %number = load i64, ptr %number.at
  %position = load i64, ptr %rc
  %where = add i64 %base, %position
  %where.at = getelementptr i64, ptr %rc, i64 1
  store i64 %where, ptr %where.at
  %moved = add i64 %position, %b
  %wraps = icmp uge i64 %moved, %size
  %onward = select i1 %wraps, i64 0, i64 %moved
  store i64 %onward, ptr %rc
  %before.copy = and i64 %served, $MODE_FETCH
  %fetches = icmp ne i64 %before.copy, 0
  br i1 %fetches, label %serve, label %fetch

drain:
  %line.out = mul i64 %a, $STREAM_WORDS
  %out.at = getelementptr i64, ptr %streams, i64 %line.out
  %served.out.at = getelementptr i64, ptr %out.at, i64 $STREAM_MODE
  %served.out = load i64, ptr %served.out.at
  %number.out.at = getelementptr i64, ptr %out.at, i64 $STREAM_AFTER
  %number.out = load i64, ptr %number.out.at
  %after.copy = and i64 %served.out, $MODE_DRAIN
  %drains = icmp ne i64 %after.copy, 0
  br i1 %drains, label %serve, label %fetch

bind:
  %bound = load i64, ptr %ra
  store i64 %bound, ptr %rb
  br label %fetch

advance:
  %stood = load i64, ptr %ra
  %stands = add i64 %stood, %b
  store i64 %stands, ptr %ra
  br label %fetch

named:
  %index.at = inttoptr i64 %d to ptr
  %index.short = load i32, ptr %index.at, align 1
  %index = zext i32 %index.short to i64
  %index.bytes = mul i64 %index, %c
  %named.begin = add i64 %b, %index.bytes
  store i64 %named.begin, ptr %ra
  br label %fetch

tally:
  br i1 %leads, label %count, label %fetch
count:
  %tally.at = inttoptr i64 %a to ptr
  %sum = load i64, ptr %tally.at
  %raised = add i64 %sum, %b
  store i64 %raised, ptr %tally.at
  br label %fetch

case:
  %control.at = inttoptr i64 %a to ptr
  %control = load i64, ptr %control.at, align 1
  %number.case = and i64 %control, %b
  %chosen = icmp eq i64 %number.case, %c
  br i1 %chosen, label %taken, label %fetch

rows:
  %table = inttoptr i64 %a to ptr
  br label %rows.look
rows.look:
  %row = phi i64 [0, %rows], [%row.next, %row.check]
  %row.more = icmp slt i64 %row, %b
  br i1 %row.more, label %row.check, label %fetch
row.check:
  %row.entry = getelementptr ptr, ptr %table, i64 %row
  %row.at = load ptr, ptr %row.entry
  %row.short = load i32, ptr %row.at, align 1
  %row.value = zext i32 %row.short to i64
  %row.next = add i64 %row, 1
  %row.good = icmp ult i64 %row.value, %c
  br i1 %row.good, label %rows.look, label %taken

elapsed:
  br i1 %leads, label %subtract, label %fetch
subtract:
  %late.at = inttoptr i64 %b to ptr
  %late = load i64, ptr %late.at
  %early.at = inttoptr i64 %c to ptr
  %early = load i64, ptr %early.at
  %between = sub i64 %late, %early
  %between.more = add i64 %between, %d
  %elapsed.at = inttoptr i64 %a to ptr
  store i64 %between.more, ptr %elapsed.at
  br label %fetch

modes:
  br i1 %leads, label %switching, label %fetch
switching:
  %modes.at = inttoptr i64 %a to ptr
  %modes.old = load i64, ptr %modes.at
  %modes.kept = and i64 %modes.old, %b
  %modes.new = or i64 %modes.kept, %c
  store i64 %modes.new, ptr %modes.at
  br label %fetch

serve:
  %which = phi i64 [%a, %fetch], [%number, %stream], [%number.out, %drain]
  %serve.depth = load i64, ptr %lone
  %serve.alone = icmp ne i64 %serve.depth, 0
  br i1 %serve.alone, label %calling, label %all.quiet
all.quiet:
  %quiet = call i64 @${KIND}_barrier(ptr %notes, ptr %shared, i64 %thread, i64 %threads, ptr %generation, i64 0, i64 0)
  br i1 %leads, label %calling, label %served.all
calling:
  call void @restore_denormals(i64 %mode)
  %status = call i64 @${KIND}_callback(ptr %notes, i64 %at, ptr %python, i64 %which)
  %again = call i64 @flush_denormals()
  store i64 %status, ptr %failed
  %well = icmp eq i64 %status, 0
  %served.alone = and i1 %serve.alone, %well
  br i1 %served.alone, label %fetch, label %served.all
served.all:
  %raised.error = load i64, ptr %failed
  %outcome = call i64 @${KIND}_barrier(ptr %notes, ptr %shared, i64 %thread, i64 %threads, ptr %generation, i64 %raised.error, i64 0)
  %broken = icmp ne i64 %outcome, 0
  br i1 %broken, label %leave, label %fetch

halt:
  br label %leave
leave:
  %verdict = phi i64 [%agreed, %all.meet], [%outcome, %served.all], [$VERDICT_DONE, %halt]
  call void @restore_denormals(i64 %mode)
  br i1 %leads, label %telling, label %gone
telling:
  %verdict.at = getelementptr i64, ptr %shared, i64 $SHARED_VERDICT
  store atomic i64 %verdict, ptr %verdict.at release, align 8
  br label %gone
gone:
  ret i64 %verdict
}
