#pragma once
/// Proven errors of approximations.
#include "redblue/methods/certificate.hpp"
