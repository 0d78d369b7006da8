; Leaves called so that a fault of the processor in them leads back here, and the handler of such faults (Linux, x86-64).
; A guard is a row of words, numbered in abele.runtime.bytecode; offsets below are bytes. The registers that a called
; function keeps are taken from there after the call as well: a leaf that wrote beyond an array on its stack may have
; lost them, and then RBX, too, leads to no guard.

module asm ".text"
module asm ".globl abele_guarded"
module asm "abele_guarded:"
module asm "  movq %rbx, 0(%rdi)"
module asm "  movq %rbp, 8(%rdi)"
module asm "  movq %r12, 16(%rdi)"
module asm "  movq %r13, 24(%rdi)"
module asm "  movq %r14, 32(%rdi)"
module asm "  movq %r15, 40(%rdi)"
module asm "  leaq 8(%rsp), %rax"
module asm "  movq %rax, 48(%rdi)"
module asm "  movq (%rsp), %rax"
module asm "  movq %rax, 56(%rdi)"
module asm "  stmxcsr 64(%rdi)"
module asm "  movq %rsi, 88(%rdi)"
module asm "  movq %rdx, 96(%rdi)"
module asm "  movq %rcx, 104(%rdi)"
module asm "  movq %r8, 112(%rdi)"
module asm "  movq $$1, 72(%rdi)"
module asm "  movq %rdi, %rbx"
module asm "  movq 136(%rdi), %rax"
module asm "  subq $$8, %rsp"
module asm "  testq %rax, %rax"
module asm "  cmovneq %rax, %rsp"
module asm "  movq %rsi, %rax"
module asm "  movq %rdx, %rdi"
module asm "  movq %rcx, %rsi"
module asm "  movq %r8, %rdx"
module asm "  movq %r9, %rcx"
module asm "  callq *%rax"
module asm "  cmpq %rbx, 144(%rbx)"
module asm "  jne abele_lost"
module asm "  movq $$0, 72(%rbx)"
module asm "  movq 48(%rbx), %rsp"
module asm "  subq $$8, %rsp"
module asm "  movq 8(%rbx), %rbp"
module asm "  movq 16(%rbx), %r12"
module asm "  movq 24(%rbx), %r13"
module asm "  movq 32(%rbx), %r14"
module asm "  movq 40(%rbx), %r15"
module asm "  movq 0(%rbx), %rbx"
module asm "  xorl %eax, %eax"
module asm "  retq"
module asm "abele_lost:"
module asm "  ud2"
module asm ".globl abele_resume"
module asm "abele_resume:"
module asm "  movq $$0, 72(%rdi)"
module asm "  ldmxcsr 64(%rdi)"
module asm "  movq 0(%rdi), %rbx"
module asm "  movq 8(%rdi), %rbp"
module asm "  movq 16(%rdi), %r12"
module asm "  movq 24(%rdi), %r13"
module asm "  movq 32(%rdi), %r14"
module asm "  movq 40(%rdi), %r15"
module asm "  movq 48(%rdi), %rsp"
module asm "  cld"
module asm "  movl $$1, %eax"
module asm "  jmpq *56(%rdi)"

declare i64 @abele_guarded(ptr, ptr, i64, i64, ptr, i64)
declare void @abele_resume()
declare i64 @pthread_self()
declare i32 @sigaction(i32, ptr, ptr)

@abele_guards = global ptr null
@abele_guard_count = global i64 0
@abele_actions = global ptr null

; A signal. If it comes out of a leaf, the thread goes on behind the call of that leaf; else it is what it was before.
; In ucontext_t the registers begin at byte 40: RDI is the 8th, RIP the 16th. In siginfo_t the address is at byte 16.
define void @abele_on_fault(i32 %signal, ptr %info, ptr %context) {
entry:
  %self = call i64 @pthread_self()
  %guards = load ptr, ptr @abele_guards
  %count = load i64, ptr @abele_guard_count
  br label %look
look:
  %number = phi i64 [0, %entry], [%next, %other]
  %more = icmp slt i64 %number, %count
  br i1 %more, label %check, label %foreign
check:
  %first = mul i64 %number, $GUARD_WORDS
  %guard = getelementptr i64, ptr %guards, i64 %first
  %active.at = getelementptr i64, ptr %guard, i64 $GUARD_ACTIVE
  %active = load volatile i64, ptr %active.at
  %thread.at = getelementptr i64, ptr %guard, i64 $GUARD_THREAD
  %thread = load volatile i64, ptr %thread.at
  %mine = icmp eq i64 %thread, %self
  %inside = icmp ne i64 %active, 0
  %ours = and i1 %mine, %inside
  br i1 %ours, label %found, label %other
other:
  %next = add i64 %number, 1
  br label %look
found:
  %address.at = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %address.at
  %noted.at = getelementptr i64, ptr %guard, i64 $GUARD_ADDRESS
  store i64 %address, ptr %noted.at
  %signal.at = getelementptr i64, ptr %guard, i64 $GUARD_SIGNAL
  %signal.word = zext i32 %signal to i64
  store i64 %signal.word, ptr %signal.at
  %rdi.at = getelementptr i8, ptr %context, i64 104
  store ptr %guard, ptr %rdi.at
  %rip.at = getelementptr i8, ptr %context, i64 168
  store ptr @abele_resume, ptr %rip.at
  ret void
foreign:
  %actions = load ptr, ptr @abele_actions
  %signal.index = zext i32 %signal to i64
  %offset = mul i64 %signal.index, $ACTION_BYTES
  %action = getelementptr i8, ptr %actions, i64 %offset
  %handler = load ptr, ptr %action
  %plain = ptrtoint ptr %handler to i64
  %default = icmp ult i64 %plain, 2
  br i1 %default, label %restore, label %pass
restore:
  %done = call i32 @sigaction(i32 %signal, ptr %action, ptr null)
  ret void
pass:
  call void %handler(i32 %signal, ptr %info, ptr %context)
  ret void
}

define internal void @guard_begin(ptr %guard) {
  %self = call i64 @pthread_self()
  %thread.at = getelementptr i64, ptr %guard, i64 $GUARD_THREAD
  store volatile i64 %self, ptr %thread.at
  ret void
}

; Installs the handler again for those of some signals whose action is the system's own (0: its default, 1: to ignore).
define void @hear_again(ptr %numbers, i64 %count, ptr %mine) {
entry:
  %now = alloca [$ACTION_BYTES x i8], align 8
  br label %look
look:
  %at = phi i64 [0, %entry], [%next, %other]
  %more = icmp slt i64 %at, %count
  br i1 %more, label %ask, label %done
ask:
  %number.at = getelementptr i64, ptr %numbers, i64 %at
  %number = load i64, ptr %number.at
  %signal = trunc i64 %number to i32
  %asked = call i32 @sigaction(i32 %signal, ptr null, ptr %now)
  %handler = load i64, ptr %now
  %lost = icmp ult i64 %handler, 2
  br i1 %lost, label %install, label %other
install:
  %actions = load ptr, ptr @abele_actions
  %offset = mul i64 %number, $ACTION_BYTES
  %before = getelementptr i8, ptr %actions, i64 %offset
  %installed = call i32 @sigaction(i32 %signal, ptr %mine, ptr %before)
  br label %other
other:
  %next = add i64 %at, 1
  br label %look
done:
  ret void
}
