// What no portable C++ says: the names below are given a meaning, and a cost, where the code is made.
#pragma once

extern "C" {
__attribute__((const)) float abele_sigmoid_f32(float);
__attribute__((const)) float abele_rsqrt_f32(float);
__attribute__((const)) float abele_tanh_f32(float);
__attribute__((const)) _Float16 abele_sigmoid_f16(_Float16);
__attribute__((const)) _Float16 abele_rsqrt_f16(_Float16);
__attribute__((const)) _Float16 abele_tanh_f16(_Float16);
__attribute__((const)) unsigned abele_worker_id();
unsigned abele_urand32();
unsigned abele_control_register(); // only the hardware has it
}
