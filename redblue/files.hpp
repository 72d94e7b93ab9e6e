#pragma once
/// Arrays in .npy, safetensors and raw files, read in place and written whole or not at all; and runs over files, which
/// hold no more in memory than fast memory and the buffers of requests.
#include "redblue/files/atomic_file.hpp"
#include "redblue/files/io/engine.hpp"
#include "redblue/files/io/file_map.hpp"
#include "redblue/files/mapped_file.hpp"
#include "redblue/files/npy.hpp"
#include "redblue/files/partial/partial_run.hpp"
#include "redblue/files/place.hpp"
#include "redblue/files/raw.hpp"
#include "redblue/files/safetensors.hpp"
#include "redblue/files/tensor_file.hpp"
#include "redblue/runtime/files/backend.hpp"
#include "redblue/runtime/files/plan.hpp"
