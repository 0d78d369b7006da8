; Which rows of floating-point numbers hold what is no number or infinite. Units are rows; arguments are tables of
; addresses and lengths in bytes, and where each row's finding goes: 1 for NaN, 2 for infinity.

define void @nonfinite_$NAME(i64 %begin, i64 %end, ptr %args) {
entry:
  %addresses = load ptr, ptr %args
  %sizes.at = getelementptr ptr, ptr %args, i64 1
  %sizes = load ptr, ptr %sizes.at
  %found.at = getelementptr ptr, ptr %args, i64 2
  %found = load ptr, ptr %found.at
  br label %look
look:
  %u = phi i64 [%begin, %entry], [%u.next, %done]
  %more = icmp slt i64 %u, %end
  br i1 %more, label %row, label %leave
row:
  %address.at = getelementptr ptr, ptr %addresses, i64 %u
  %address = load ptr, ptr %address.at
  %size.at = getelementptr i64, ptr %sizes, i64 %u
  %size = load i64, ptr %size.at
  %num = udiv i64 %size, $BYTES
  br label %each
each:
  %i = phi i64 [0, %row], [%i.next, %element]
  %seen = phi i8 [0, %row], [%now, %element]
  %inside = icmp slt i64 %i, %num
  br i1 %inside, label %element, label %done
element:
  %at = getelementptr i$BITS, ptr %address, i64 %i
  %bits = load i$BITS, ptr %at, align 1
  %magnitude = and i$BITS %bits, $MAGNITUDE
  %nan = icmp ugt i$BITS %magnitude, $INFINITY
  %infinite = icmp eq i$BITS %magnitude, $INFINITY
  %one = zext i1 %nan to i8
  %two = select i1 %infinite, i8 2, i8 0
  %either = or i8 %one, %two
  %now = or i8 %seen, %either
  %i.next = add i64 %i, 1
  br label %each
done:
  %out = getelementptr i8, ptr %found, i64 %u
  store i8 %seen, ptr %out
  %u.next = add i64 %u, 1
  br label %look
leave:
  ret void
}
