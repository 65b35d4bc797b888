//: expect: fast
//: functions: plus_one
//: cpp: torch::Tensor plus_one(torch::Tensor x);
#include <torch/extension.h>
torch::Tensor plus_one(torch::Tensor x) { return x + 1; }
