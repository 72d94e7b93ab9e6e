#pragma once
/// The machines that count, check, trace, observe and resume a schedule.
#include "redblue/machines/any.hpp"
#include "redblue/machines/checked.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/machines/observed.hpp"
#include "redblue/machines/resumable.hpp"
#include "redblue/machines/trace.hpp"
#include "redblue/machines/weighed.hpp"
