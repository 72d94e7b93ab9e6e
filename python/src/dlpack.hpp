#pragma once
#include "arrays.hpp"

/// DLPack's table of C functions (DLPackExchangeAPI, https://dmlc.github.io/dlpack/latest/c_api.html), through which a
/// library of tensors tells where one lies, in less time than it takes to ask for attributes in Python.
namespace redblue::python {

/// From now on tensors of exactly this type are read so. Returns false, and changes nothing, where the type offers no
/// such table of a version that we know.
bool read_by_exchange(nb::handle type);

/// Is this a tensor of that type?
bool is_exchanged(nb::handle array);

/// Such a tensor, on the CPU. Throws nb::type_error where it has no memory of its own, or elements of another type.
Given from_exchange(nb::handle array, SlowArray name);

}  // namespace redblue::python
