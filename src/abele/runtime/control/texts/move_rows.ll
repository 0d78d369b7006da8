; Rows of a remote buffer to or from rows that lie after each other. Arguments: the buffer, the other side, a table of
; addresses of u32 row numbers, rows that a unit moves, bytes of a row, bytes of a chunk, chunks of a row, and whether
; the buffer is written. Unit u moves chunk u % chunks of the rows from u / chunks on.

define void @move_rows(i64 %begin, i64 %end, ptr %args) {
entry:
  %buffer = load ptr, ptr %args
  %other.at = getelementptr ptr, ptr %args, i64 1
  %other = load ptr, ptr %other.at
  %table.at = getelementptr ptr, ptr %args, i64 2
  %table = load ptr, ptr %table.at
  %number.at = getelementptr ptr, ptr %args, i64 3
  %number = load i64, ptr %number.at
  %bytes.at = getelementptr ptr, ptr %args, i64 4
  %bytes = load i64, ptr %bytes.at
  %chunk.at = getelementptr ptr, ptr %args, i64 5
  %chunk = load i64, ptr %chunk.at
  %chunks.at = getelementptr ptr, ptr %args, i64 6
  %chunks = load i64, ptr %chunks.at
  %outward.at = getelementptr ptr, ptr %args, i64 7
  %outward.word = load i64, ptr %outward.at
  %outward = icmp ne i64 %outward.word, 0
  br label %look
look:
  %u = phi i64 [%begin, %entry], [%u.next, %unit.done]
  %more = icmp slt i64 %u, %end
  br i1 %more, label %unit, label %leave
unit:
  %first = sdiv i64 %u, %chunks
  %which = srem i64 %u, %chunks
  %offset = mul i64 %which, %chunk
  %left = sub i64 %bytes, %offset
  %short = icmp slt i64 %left, %chunk
  %size = select i1 %short, i64 %left, i64 %chunk
  %last = add i64 %first, %number
  br label %rows
rows:
  %i = phi i64 [%first, %unit], [%i.next, %row]
  %inside = icmp slt i64 %i, %last
  br i1 %inside, label %row, label %unit.done
row:
  %entry.at = getelementptr ptr, ptr %table, i64 %i
  %row.at = load ptr, ptr %entry.at
  %row.short = load i32, ptr %row.at, align 1
  %row.number = zext i32 %row.short to i64
  %there = mul i64 %row.number, %bytes
  %there.chunk = add i64 %there, %offset
  %in.buffer = getelementptr i8, ptr %buffer, i64 %there.chunk
  %here = mul i64 %i, %bytes
  %here.chunk = add i64 %here, %offset
  %in.other = getelementptr i8, ptr %other, i64 %here.chunk
  %to = select i1 %outward, ptr %in.buffer, ptr %in.other
  %from = select i1 %outward, ptr %in.other, ptr %in.buffer
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  %i.next = add i64 %i, 1
  br label %rows
unit.done:
  %u.next = add i64 %u, 1
  br label %look
leave:
  ret void
}
