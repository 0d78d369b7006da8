; Copies as leaves: units are runs; arguments are the bases of source and destination and tables of offsets and lengths.

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define void @copy_runs(i64 %begin, i64 %end, ptr %args) {
entry:
  %source = load ptr, ptr %args
  %destination.at = getelementptr ptr, ptr %args, i64 1
  %destination = load ptr, ptr %destination.at
  %from.at = getelementptr ptr, ptr %args, i64 2
  %from = load ptr, ptr %from.at
  %to.at = getelementptr ptr, ptr %args, i64 3
  %to = load ptr, ptr %to.at
  %sizes.at = getelementptr ptr, ptr %args, i64 4
  %sizes = load ptr, ptr %sizes.at
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
  %i.size = getelementptr i64, ptr %sizes, i64 %i
  %size = load i64, ptr %i.size
  %read = getelementptr i8, ptr %source, i64 %offset
  %write = getelementptr i8, ptr %destination, i64 %target
  call void @llvm.memcpy.p0.p0.i64(ptr %write, ptr %read, i64 %size, i1 false)
  %next = add i64 %i, 1
  br label %look
leave:
  ret void
}
