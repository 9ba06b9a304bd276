#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* Instructions executed since reset: the same number in every run. */
uint32_t instructions(void);

#endif
