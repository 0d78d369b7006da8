; Number of the first of some zones in which a byte has changed, from a given one on; -1 if none has.
; Lengths and places are multiples of 8 but for the first bytes of a zone, which are looked at one by one.

define i64 @changed_zone(i64 %first, i64 %count, ptr %begins, ptr %ends) {
entry:
  br label %zones
zones:
  %zone = phi i64 [%first, %entry], [%following, %sound]
  %more = icmp slt i64 %zone, %count
  br i1 %more, label %look, label %none
look:
  %begin.at = getelementptr i64, ptr %begins, i64 %zone
  %begin = load i64, ptr %begin.at
  %end.at = getelementptr i64, ptr %ends, i64 %zone
  %end = load i64, ptr %end.at
  %up = add i64 %begin, 7
  %whole = and i64 %up, -8
  br label %bytes
bytes:
  %at = phi i64 [%begin, %look], [%at.next, %byte]
  %odd = icmp ult i64 %at, %whole
  br i1 %odd, label %byte, label %words
byte:
  %place = inttoptr i64 %at to ptr
  %seen = load i8, ptr %place
  %parity = and i64 %at, 1
  %is.high = icmp ne i64 %parity, 0
  %wanted = select i1 %is.high, i8 $ZONE_HIGH, i8 $ZONE_LOW
  %same = icmp eq i8 %seen, %wanted
  %at.next = add i64 %at, 1
  br i1 %same, label %bytes, label %found
words:
  %word = phi i64 [%whole, %bytes], [%word.next, %words.more]
  %left = icmp ult i64 %word, %end
  br i1 %left, label %words.more, label %sound
words.more:
  %word.at = inttoptr i64 %word to ptr
  %content = load i64, ptr %word.at
  %intact = icmp eq i64 %content, $ZONE_WORD
  %word.next = add i64 %word, 8
  br i1 %intact, label %words, label %found
sound:
  %following = add i64 %zone, 1
  br label %zones
found:
  ret i64 %zone
none:
  ret i64 -1
}

define i64 @call_guarded(ptr %guard, ptr %leaf, i64 %begin, i64 %end, ptr %args, i64 %extra) {
  call void @guard_begin(ptr %guard)
  %faulted = call i64 @abele_guarded(ptr %guard, ptr %leaf, i64 %begin, i64 %end, ptr %args, i64 %extra)
  ret i64 %faulted
}

; Give some zones the content by which changes are seen.
define void @fill_zones(i64 %first, i64 %count, ptr %begins, ptr %ends) {
entry:
  br label %zones
zones:
  %zone = phi i64 [%first, %entry], [%following, %full]
  %more = icmp slt i64 %zone, %count
  br i1 %more, label %start, label %done
start:
  %begin.at = getelementptr i64, ptr %begins, i64 %zone
  %begin = load i64, ptr %begin.at
  %end.at = getelementptr i64, ptr %ends, i64 %zone
  %end = load i64, ptr %end.at
  br label %bytes
bytes:
  %at = phi i64 [%begin, %start], [%at.next, %byte]
  %left = icmp ult i64 %at, %end
  br i1 %left, label %byte, label %full
byte:
  %place = inttoptr i64 %at to ptr
  %parity = and i64 %at, 1
  %is.high = icmp ne i64 %parity, 0
  %wanted = select i1 %is.high, i8 $ZONE_HIGH, i8 $ZONE_LOW
  store i8 %wanted, ptr %place
  %at.next = add i64 %at, 1
  br label %bytes
full:
  %following = add i64 %zone, 1
  br label %zones
done:
  ret void
}
