/* A program for tests: prints its arguments in UTF-8, one a line in brackets, then does what the first one says.
   exit N: ends with that code; bytes HEX: prints these bytes instead; input: counts the bytes of standard input;
   wait: makes a file, waits, in the current directory, and goes on for a minute. */
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>
#include <windows.h>
#include <shellapi.h>

static char utf8[65536];

int main(void)
{
    int count, number = 0;
    unsigned byte;
    LPWSTR *words = CommandLineToArgvW(GetCommandLineW(), &count);

    _setmode(0, _O_BINARY);
    _setmode(1, _O_BINARY);
    if (count == 3 && !wcscmp(words[1], L"bytes")) {
        for (WCHAR *hex = words[2]; swscanf(hex, L"%2x", &byte) == 1; hex += 2)
            putchar(byte);
        return 0;
    }
    for (int each = 1; each < count; each++) {
        WideCharToMultiByte(CP_UTF8, 0, words[each], -1, utf8, sizeof utf8, 0, 0);
        printf("[%s]\n", utf8);
    }
    if (count == 3 && !wcscmp(words[1], L"exit"))
        ExitProcess((UINT)wcstol(words[2], 0, 10));
    if (count == 2 && !wcscmp(words[1], L"input")) {
        while (getchar() != EOF)
            number++;
        printf("%d\n", number);
    }
    fflush(stdout);
    if (count == 2 && !wcscmp(words[1], L"wait")) {
        fclose(fopen("waits", "w"));
        Sleep(60000);
    }
    return 0;
}
