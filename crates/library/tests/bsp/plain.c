/* A program in the place of one in another language: it knows symbols, not the header. */
extern void bsp_abort(const char *format, ...);

int main(void)
{
    void (*function)(const char *, ...) = bsp_abort;

    function("%s %d, %.1f\n", "numbers:", 7, 0.5);
    return 0;
}
