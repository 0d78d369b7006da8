; Copies of runs that all have $BITS bits.

define void @copy_elements_$BYTES(i64 %begin, i64 %end, ptr %args) {
entry:
  %source = load ptr, ptr %args
  %destination.at = getelementptr ptr, ptr %args, i64 1
  %destination = load ptr, ptr %destination.at
  %from.at = getelementptr ptr, ptr %args, i64 2
  %from = load ptr, ptr %from.at
  %to.at = getelementptr ptr, ptr %args, i64 3
  %to = load ptr, ptr %to.at
  br label %look
look:
  %i = phi i64 [%begin, %entry], [%next, %run]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %run, label %leave
run:
  %i.from = getelementptr i64, ptr %from, i64 %i
  %offset = load i64, ptr %i.from
  %i.to = getelementptr i64, ptr %to, i64 %i
  %target = load i64, ptr %i.to
  %read = getelementptr i8, ptr %source, i64 %offset
  %write = getelementptr i8, ptr %destination, i64 %target
  %element = load i$BITS, ptr %read, align 1
  store i$BITS %element, ptr %write, align 1
  %next = add i64 %i, 1
  br label %look
leave:
  ret void
}
