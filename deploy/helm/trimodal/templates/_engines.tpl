{{- /*
Containers that build engines, one a build; of (list $ profile). What is there from the same command and the same
image is left alone: a line in /engines/.built-NAME says so, written when the build has ended well.
*/ -}}
{{- define "trimodal.builds" -}}
{{- $ := index . 0 -}}
{{- $profile := index . 1 -}}
{{- range $index, $build := $profile.builds }}
{{- if $index }}{{ "\n" }}{{ end -}}
- name: build-{{ .name }}
  image: {{ include "trimodal.image" (list $ $profile.buildTag) }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  command:
    - /bin/sh
    - -euc
    - |
      mark=$1 wanted=$2
      shift 2
      if [ "$(cat "$mark" 2>/dev/null)" = "$wanted" ]; then
        echo "$mark: built before"
        exit 0
      fi
      "$@"
      printf %s "$wanted" > "$mark"
    - build
    - /engines/.built-{{ .name }}
    - {{ include "trimodal.buildHash" (list $ $profile .) | quote }}
    {{- range .command }}
    - {{ . | quote }}
    {{- end }}
  env:
    - { name: HOME, value: /tmp }
    - { name: TRIMODAL_ENGINES, value: /engines }
    {{- with $.Values.engines.hubSecret }}
    - { name: HF_TOKEN, valueFrom: { secretKeyRef: { name: {{ . }}, key: token } } }
    {{- end }}
  resources:
    {{- include "trimodal.resources" (list $ $profile.buildResources .gpus) | nindent 4 }}
  securityContext:
    {{- include "trimodal.containerSecurity" $ | nindent 4 }}
  volumeMounts:
    - { name: engines, mountPath: /engines }
    - { name: hub, mountPath: /hub }
    - { name: tmp, mountPath: /tmp }
    - { name: shm, mountPath: /dev/shm }
    {{- if $.Values.engines.checkpointsClaim }}
    - { name: checkpoints, mountPath: /checkpoints, readOnly: true }
    {{- end }}
    {{- with include "trimodal.repositoryMounts" (list $ "/opt/trimodal/model_repository") }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}

{{- /* A container that waits until a Job has built all engines; of (list $ profile). */ -}}
{{- define "trimodal.builtWait" -}}
{{- $ := index . 0 -}}
{{- $profile := index . 1 -}}
- name: await-engines
  image: {{ include "trimodal.image" (list $ $profile.tag) }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  command:
    - /bin/sh
    - -euc
    - |
      while [ $# -gt 0 ]; do
        until [ "$(cat "$1" 2>/dev/null)" = "$2" ]; do sleep 2; done
        shift 2
      done
    - wait
    {{- range $profile.builds }}
    - /engines/.built-{{ .name }}
    - {{ include "trimodal.buildHash" (list $ $profile .) | quote }}
    {{- end }}
  resources:
    requests: { cpu: 10m, memory: 32Mi }
    limits: { memory: 64Mi }
  securityContext:
    {{- include "trimodal.containerSecurity" $ | nindent 4 }}
  volumeMounts:
    - { name: engines, mountPath: /engines, readOnly: true }
{{- end -}}

{{- /* Volumes of whatever builds, but that of the engines. */ -}}
{{- define "trimodal.buildVolumes" -}}
- { name: hub, emptyDir: { sizeLimit: {{ .Values.engines.size }} } }
{{- with .Values.engines.checkpointsClaim }}
- { name: checkpoints, persistentVolumeClaim: { claimName: {{ . }}, readOnly: true } }
{{- end }}
{{- end -}}

{{- /* /tmp and /dev/shm, and the edited files of the repository. */ -}}
{{- define "trimodal.commonVolumes" -}}
- { name: tmp, emptyDir: { sizeLimit: {{ .Values.server.tmpSize }} } }
- { name: shm, emptyDir: { medium: Memory, sizeLimit: {{ .Values.server.shmSize }} } }
{{- if .Values.server.files }}
- { name: files, configMap: { name: {{ include "trimodal.name" . }}-files } }
{{- end }}
{{- end -}}

{{- /* Edited files in the place of the image's own; of (list $ "/repository"). */ -}}
{{- define "trimodal.repositoryMounts" -}}
{{- $folder := index . 1 -}}
{{- range $path, $_ := (index . 0).Values.server.files -}}
- { name: files, mountPath: {{ $folder }}/{{ $path }}, subPath: {{ $path | replace "/" "__" }}, readOnly: true }
{{ end -}}
{{- end -}}
