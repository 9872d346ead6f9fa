/* A program for tests that stands for another one: prints what lies beside it, in a file with its name that ends in .txt. */
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <string.h>
#include <windows.h>

int main(void)
{
    char name[1024];
    FILE *file;
    int byte;

    _setmode(1, _O_BINARY);
    GetModuleFileNameA(NULL, name, sizeof name);
    strcpy(strrchr(name, '.'), ".txt");
    if (!(file = fopen(name, "rb")))
        return 3;
    while ((byte = getc(file)) != EOF)
        putchar(byte);
    return 0;
}
