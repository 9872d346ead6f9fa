/* As Win32-OpenSSH starts a command: cmd.exe /c "…", the command's text as it came. It is in the file that LINE names. */
#include <stdlib.h>
#include <wchar.h>
#include <windows.h>

static char bytes[65536];
static WCHAR text[65536], line[65600];

int main(void)
{
    DWORD length = 0, got, code = 0;
    HANDLE file = CreateFileA(getenv("LINE"), GENERIC_READ, FILE_SHARE_READ, 0, OPEN_EXISTING, 0, 0);
    STARTUPINFOW start = {sizeof start};
    PROCESS_INFORMATION process;

    while (ReadFile(file, bytes + length, sizeof bytes - 1 - length, &got, 0) && got)
        length += got;
    MultiByteToWideChar(CP_UTF8, 0, bytes, -1, text, 65536);
    wcscpy(line, L"\"C:\\windows\\system32\\cmd.exe\" /c \"");
    wcscat(line, text);
    wcscat(line, L"\"");
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    if (!CreateProcessW(0, line, 0, 0, TRUE, 0, 0, 0, &start, &process))
        return 250;
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    ExitProcess(code);
}
