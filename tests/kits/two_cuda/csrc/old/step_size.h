#pragma once

#define STEP_SIZE 10
