"""The pool of one thread: a parallel loop is an ordinary call."""

SERIAL_POOL = """
define void @whet_parallel(ptr %body, ptr %context, i64 %n) nounwind {
  call void %body(ptr %context, i64 0, i64 %n)
  ret void
}
"""
