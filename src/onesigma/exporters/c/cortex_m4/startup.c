/* From reset to main, and a counter of instructions; for QEMU's mps2-an386 with semihosting. */
#include <stdint.h>
#include <stdlib.h>

#include "board.h"

extern uint32_t __stack, data_image, data_start, data_end, bss_start, bss_end;
extern void initialise_monitor_handles(void);
extern int main(void);

#define COPROCESSORS (*(volatile uint32_t *)0xE000ED88)
#define TIMER_CONTROL (*(volatile uint32_t *)0x40000000)
#define TIMER_VALUE (*(volatile uint32_t *)0x40000004)
#define TIMER_RELOAD (*(volatile uint32_t *)0x40000008)

void reset(void)
{
    COPROCESSORS |= 0xFu << 20; /* the FPU, before any float is touched */
    const uint32_t *from = &data_image;
    for (uint32_t *to = &data_start; to < &data_end;)
        *to++ = *from++;
    for (uint32_t *to = &bss_start; to < &bss_end;)
        *to++ = 0;
    initialise_monitor_handles();
    TIMER_RELOAD = 0xFFFFFFFFu;
    TIMER_VALUE = 0xFFFFFFFFu;
    TIMER_CONTROL = 1;
    exit(main());
}

static void fault(void)
{
    abort();
}

__attribute__((section(".vectors"), used)) static const struct {
    const void *stack;
    void (*handlers[15])(void);
} vectors = {&__stack, {reset, fault, fault, fault, fault, fault}};

/* QEMU with -icount shift=6 gives each instruction 64 ns; the timer runs at 25 MHz. */
uint32_t instructions(void)
{
    return (uint32_t)((uint64_t)(0xFFFFFFFFu - TIMER_VALUE) * 5 / 8);
}
