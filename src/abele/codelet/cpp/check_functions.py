"""Functions that checked code calls, in LLVM's text: they hold an access against the places that it may touch."""

from __future__ import annotations

FUNCTIONS = """
; Whether [at, at + bytes) lies in [base, base + limit). Both tests are of unsigned numbers: an address before the base
; is one far behind its end, and the sum of an address and a length, which may wrap around, is never formed.
define internal i1 @abele.inside(i64 %at, i64 %bytes, i64 %base, i64 %limit) alwaysinline {
  %offset = sub i64 %at, %base
  %begins = icmp ule i64 %offset, %limit
  %left = sub i64 %limit, %offset
  %ends = icmp ule i64 %bytes, %left
  %inside = and i1 %begins, %ends
  ret i1 %inside
}

; Notes an access in the report, if it is the first.
define internal void @abele.note(ptr %report, i64 %number, i64 %site, i64 %offset, i64 %limit, i32 %worker,
                                 i64 %bytes) noinline {
  %known = load i64, ptr %report
  %first = icmp eq i64 %known, 0
  br i1 %first, label %note, label %leave
note:
  %vertex = add i64 %number, 1
  store i64 %vertex, ptr %report
  %site.at = getelementptr i64, ptr %report, i64 1
  store i64 %site, ptr %site.at
  %offset.at = getelementptr i64, ptr %report, i64 2
  store i64 %offset, ptr %offset.at
  %limit.at = getelementptr i64, ptr %report, i64 3
  store i64 %limit, ptr %limit.at
  %worker.at = getelementptr i64, ptr %report, i64 4
  %worker.word = zext i32 %worker to i64
  store i64 %worker.word, ptr %worker.at
  %touched.at = getelementptr i64, ptr %report, i64 5
  store i64 %bytes, ptr %touched.at
  br label %leave
leave:
  ret void
}

; The pointer, where an access stays in its place; else that of the scrap of memory, and the access is noted.
define internal ptr @abele.checked(ptr %p, i64 %bytes, ptr %base, i64 %limit, i64 %site, ptr %report, i64 %number,
                                   i32 %worker, ptr %nowhere) noinline {
  %at = ptrtoint ptr %p to i64
  %from = ptrtoint ptr %base to i64
  %inside = call i1 @abele.inside(i64 %at, i64 %bytes, i64 %from, i64 %limit)
  br i1 %inside, label %good, label %bad
good:
  ret ptr %p
bad:
  %offset = sub i64 %at, %from
  call void @abele.note(ptr %report, i64 %number, i64 %site, i64 %offset, i64 %limit, i32 %worker, i64 %bytes)
  ret ptr %nowhere
}

; The same for a pointer that may lead into any of some places. A place is three words: base, limit, and for a table of
; rows the bytes of an element; then the limit is the number of rows, and the access may be in any row.
define internal ptr @abele.checked.any(ptr %p, i64 %bytes, ptr %places, i64 %count, i64 %site, ptr %report,
                                       i64 %number, i32 %worker, ptr %nowhere) noinline {
entry:
  %at = ptrtoint ptr %p to i64
  br label %look
look:
  %n = phi i64 [0, %entry], [%next, %other], [%next, %rows.done]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %place, label %bad
place:
  %next = add i64 %n, 1
  %row = mul i64 %n, 24
  %place.at = getelementptr i8, ptr %places, i64 %row
  %base = load i64, ptr %place.at
  %limit.at = getelementptr i8, ptr %place.at, i64 8
  %limit = load i64, ptr %limit.at
  %rows.at = getelementptr i8, ptr %place.at, i64 16
  %each = load i64, ptr %rows.at
  %is.table = icmp ne i64 %each, 0
  br i1 %is.table, label %rows, label %plain
plain:
  %inside = call i1 @abele.inside(i64 %at, i64 %bytes, i64 %base, i64 %limit)
  br i1 %inside, label %good, label %other
other:
  br label %look
rows:
  %table = inttoptr i64 %base to ptr
  br label %rows.look
rows.look:
  %r = phi i64 [0, %rows], [%r.next, %row.check]
  %rows.more = icmp ult i64 %r, %limit
  br i1 %rows.more, label %row.check, label %rows.done
rows.done:
  br label %look
row.check:
  %r.next = add i64 %r, 1
  %entry.offset = mul i64 %r, 16
  %entry.at = getelementptr i8, ptr %table, i64 %entry.offset
  %row.base = load i64, ptr %entry.at
  %row.length.at = getelementptr i8, ptr %entry.at, i64 8
  %row.length = load i32, ptr %row.length.at
  %row.wide = zext i32 %row.length to i64
  %row.limit = mul i64 %row.wide, %each
  %row.inside = call i1 @abele.inside(i64 %at, i64 %bytes, i64 %row.base, i64 %row.limit)
  br i1 %row.inside, label %good, label %rows.look
good:
  ret ptr %p
bad:
  call void @abele.note(ptr %report, i64 %number, i64 %site, i64 %at, i64 0, i32 %worker, i64 %bytes)
  ret ptr %nowhere
}
"""
