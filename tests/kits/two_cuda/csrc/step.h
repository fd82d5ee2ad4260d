#pragma once

#include <cstdint>

int64_t old_step();
int64_t new_step();
