#pragma once
/// Hold the answers of a run against an fp64 oracle.
#include "redblue/verify/verify.hpp"
